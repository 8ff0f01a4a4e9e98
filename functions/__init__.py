"""The events we react to, one function each: decode, run the flow, acknowledge or raise (shared.messaging.push)."""
