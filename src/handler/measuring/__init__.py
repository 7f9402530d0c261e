"""What `bridge bench` does: asks for streamed answers, times what arrives, reports it."""
