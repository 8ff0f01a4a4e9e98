"""The cost of a job: list prices, the price of its machines, and advice that follows from them.

    sku → sku_resources → price_list     what Google's catalogue says, reduced to what jobs use
    machine_shapes → machine_price       price of one machine of a role per hour
    job_cost                             price of a job's machine time, by attempt and phase
    operations                           price of the control plane's own work for a job
    checkpoint_times                     when objects were written to a job's directory
    advice                               checkpoint interval, Spot share and restart policy

An unknown price stays unknown: nothing here guesses.
"""
