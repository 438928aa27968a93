"""The tables of the invented clinic: terms, diseases, and sentences in French and in English."""
