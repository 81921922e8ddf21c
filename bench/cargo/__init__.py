"""The sections of bench/cargo.py."""
