"""Tables from CSV files, as the built-in algorithms read them.

read_csv            files → a table of texts
analysis            a table of texts → what each column is (`Metadata`)
metadata            the stored form of that, `artifacts/metadata.json`
preparation         training, validation and test tables: split, cleaned, filled
encoding            a table → numbers, for XGBoost
instance_generator  one row → numbers, for clients; standard library only, stored with the model
"""
