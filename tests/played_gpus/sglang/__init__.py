"""Stands where SGLang would."""
