"""BERT, multilingual BERT, RoBERTa and GPT-2: the transformers over subwords that other families stand on."""
