"""Text of language models: tokenizers made of what model files hold, and chat templates."""
