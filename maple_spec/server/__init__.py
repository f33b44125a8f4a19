"""HTTP: Connexion, ASGI and processes; everything below hears of them only through the values it is handed."""
