"""Reads Hugging Face ``config.json`` files: one file a family of decoders, none of them guesses."""
