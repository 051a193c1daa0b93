"""Generated protobuf code (`make proto`); the schema is in proto/."""
