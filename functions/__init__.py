"""The events that Trainmaster reacts to, one function each: decode, authenticate, run the flow.

`trainmaster.messaging.push` turns the outcome into an acknowledgement or a redelivery.
"""
