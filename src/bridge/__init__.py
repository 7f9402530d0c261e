"""The core: canonical form, protocol codecs, routing and the pipeline. No environment, no Lambda, no framework."""
