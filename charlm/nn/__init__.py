"""Neural network layers that depend on no task and on no model family.

Model code of the families builds on it. Begin with `transformer` (HLM's encoder) or `blocks` (that of BERT and GPT-2);
both compute attention with `kernels`.
"""
