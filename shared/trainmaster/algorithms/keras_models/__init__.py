"""The models of `linear_learner`, `wide_deep_learner` and `tab_net`, and the code that they share.

rows        texts of a row → tensors; part of the exported model
training    the loop: steps, evaluations, checkpoints
export      the SavedModel, which takes CSV rows
learner     the whole run of one algorithm
optimizers  arguments → optimizers
parts       models: linear, deep
tab_net_model, tab_net_layers    the TabNet model, and its layers
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
