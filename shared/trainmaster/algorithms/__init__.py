"""The built-in algorithms of AI Platform Training, as ordinary trainers. README.md describes them.

    boosted_trees, xgboost_dist                   `python -m algorithms.NAME`: XGBoost on one machine, on several
    linear_learner, wide_deep_learner, tab_net    the same with TensorFlow's Keras
    arguments       names, types, defaults and ranges of all arguments; also checked when a job is submitted
    tabular         CSV files → analysed, split, filled and encoded tables
    keras_models    what the three Keras algorithms share, and their models
    program, files, results                       start and exit status; gs:// or local files; metrics and output

The algorithms do not depend on Trainmaster. They use their arguments, and the variables that every
trainer gets.
"""
