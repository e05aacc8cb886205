"""From op lists to advice: scenarios, the search for a plan, recommendations."""
