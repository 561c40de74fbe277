"""Runs inside SGLang's processes. Imports only the standard library until SGLang is imported."""
