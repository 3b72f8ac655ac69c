"""One file a driver; being here is what registers it, by the name of its file."""
