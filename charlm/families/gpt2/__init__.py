"""Pre-training of GPT-2 from nothing, the plain rival of an HLM that writes; the model is `families.subword.gpt2`.

Begin with `objective`. `charlm.families.subword` defines the family.
"""
