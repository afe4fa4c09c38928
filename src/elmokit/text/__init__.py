"""Raw text to ids: reading, cleaning, words, vocabularies, prepared corpora, batches."""
