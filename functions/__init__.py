"""The events that Trainmaster reacts to, one function each, which runs its flow.

`trainmaster.messaging.push` turns the outcome into an acknowledgement or a redelivery.
"""
