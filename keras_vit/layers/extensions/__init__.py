"""What later families and methods add to the paper's layers."""
