"""Everything about SGLang: flags per release, rules, log parsing, failure diagnosis."""
