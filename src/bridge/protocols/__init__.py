"""One folder per protocol, each a codec to and from the canonical form. None imports another."""
