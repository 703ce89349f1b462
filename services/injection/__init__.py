"""injection: hands back an application's prompt with the facts about its user that matter now."""
