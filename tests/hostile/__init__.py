"""Whatever a model's files hold, opening it and reading its weights ends soon: with the model or with a ValueError.

All layouts, through the function that every user's model goes through. What one reader makes of one fault is tested
beside that reader.
"""
