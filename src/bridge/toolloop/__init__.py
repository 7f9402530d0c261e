"""Tools that the bridge itself runs: the loop around the model, its record of what ran, web_fetch and MCP servers."""
