"""Whether a sweep can run here, before it does: facts are gathered, checks over them are values."""
