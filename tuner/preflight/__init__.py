"""plan, estimate and doctor: what is known before a launch."""
