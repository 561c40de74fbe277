"""Servers: launch one, talk to it, stop it, say why it died. The rest of the house sees `base`."""
