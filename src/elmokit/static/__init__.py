"""Static word vectors: SVD of co-occurrences, skip-gram, CBOW; one type for all of them."""
