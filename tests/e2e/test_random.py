"""Some thousand random operations of all kinds over two brokers.

$HOLDFAST_SEED (1) and $RANDOM_OPERATIONS (5000) choose others.
"""

import os

import random_operations
from harness import HarnessCase, shared_redis

SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
OPERATIONS = int(os.environ.get("RANDOM_OPERATIONS", "5000"))


class RandomTest(HarnessCase):
    test_timeout = 300

    def test_all_is_as_the_model_has_it(self):
        redis = shared_redis()
        brokers = [self.broker(redis, random_operations.SETTINGS)
                   for _ in range(2)]
        addresses = [broker.address for broker in brokers]
        print(f"seed {SEED}, {OPERATIONS} operations")
        result = random_operations.run(addresses, SEED, OPERATIONS)
        self.assertGreater(result.grants, OPERATIONS / 5)
        self.assertGreater(len(result.done), 15)
        random_operations.check_left(redis, brokers)
