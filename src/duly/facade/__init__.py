"""The app as a user's code sees it: the class `Duly` and its parts."""
