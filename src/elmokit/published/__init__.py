"""Published ELMo models: reading, writing, converting."""
