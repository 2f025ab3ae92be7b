"""CharBERT (Ma et al., COLING 2020): BERT or RoBERTa with a second channel that reads characters."""
