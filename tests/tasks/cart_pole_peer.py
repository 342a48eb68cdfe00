"""1,000 episodes of Gymnasium's CartPole-v1, as rows of 11 doubles: action (-1 where an episode begins), state,
observation, terminated, truncated. Actions are random; in every tenth episode they hold the pole up instead, mostly
until the time is up."""
import random
import sys

import gymnasium
import numpy

chance = random.Random(0)
env = gymnasium.make("CartPole-v1", disable_env_checker=True)
rows = []


def note(action, observation, terminated=False, truncated=False):
    rows.append([action, *env.unwrapped.state, *observation.astype(numpy.float64), terminated, truncated])


for episode in range(1000):
    observation, _ = env.reset(seed=episode)
    note(-1, observation)
    over = False
    while not over:
        _, _, angle, turning = observation
        action = int(3 * angle + turning > 0) if episode % 10 == 9 else chance.randrange(2)
        observation, reward, terminated, truncated, _ = env.step(action)
        assert reward == 1
        note(action, observation, terminated, truncated)
        over = terminated or truncated
sys.stdout.buffer.write(numpy.array(rows, dtype=numpy.float64).tobytes())
