"""XRayEmb (Pinter et al., 2021): an encoder and a generator of words retrofitted to BERT, RoBERTa or GPT-2."""
