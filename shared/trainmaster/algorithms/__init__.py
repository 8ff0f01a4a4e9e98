"""The built-in algorithms of AI Platform Training, as ordinary trainers. README.md describes them.

`python -m algorithms.NAME` runs one of them:

    boosted_trees        XGBoost on one machine
    xgboost_dist         XGBoost on several machines
    linear_learner, wide_deep_learner, tab_net    TensorFlow's Keras on one machine

They share these modules and packages:

    arguments            names, types, defaults and ranges of all arguments;
                         they are also checked when a job is submitted
    tabular              CSV files → analysed, split, filled and encoded tables
    xgboost_training     boosting rounds, their data and parameters, and the connection of replicas
    keras_models         what the three Keras algorithms share, and their models
    program              start and exit status
    files                gs:// or local files
    results              metrics and output

The algorithms do not depend on Trainmaster. They use their arguments, and the variables that every
trainer gets.
"""
