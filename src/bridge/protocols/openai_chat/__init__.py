"""OpenAI Chat Completions, as OpenAI, OpenRouter, Gemini and compatible servers speak it."""
