#!lua
-- take: takes so many from a count if there are enough, as from a stock, unless
-- a later holder has been here.
--
-- KEYS: the count's key, and where the highest fence is kept (in a cluster of
-- the same slot). ARGV: the fence, how many.
-- Returns the rest; -1: there are not enough; -2: the fence is stale. Nothing
-- was taken then.
local seen = tonumber(redis.call('GET', KEYS[2]) or '0')
local fence = tonumber(ARGV[1])
local wanted = tonumber(ARGV[2])
if not string.find(ARGV[1], '^%d+$') or fence < 1 or
    fence >= 9007199254740992 then
    return redis.error_reply('ERR the fence is not a number below 2^53')
end
if not string.find(ARGV[2], '^%d+$') or wanted >= 9007199254740992 then
    return redis.error_reply('ERR how many is not a number below 2^53')
end
if not seen then
    return redis.error_reply('ERR ' .. KEYS[2] .. ' is no fence')
end
if fence < seen then
    return -2
end
local left = tonumber(redis.call('GET', KEYS[1]) or '0')
if not left then
    return redis.error_reply('ERR ' .. KEYS[1] .. ' is no count')
end
redis.call('SET', KEYS[2], ARGV[1])
if left < wanted then
    return -1
end
return redis.call('DECRBY', KEYS[1], ARGV[2])
