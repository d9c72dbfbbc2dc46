"""The app as a user's code sees it: `Duly` and what it is put together from."""
