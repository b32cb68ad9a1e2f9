-- Adds to a sliding window without asking, or takes out of it.
--
-- KEYS[1]  as in log_take
-- ARGV[1]  the window in microseconds
-- ARGV[2]  how many units to add; negative to take out the newest
-- ARGV[3]  a name that no other call has
-- ARGV[4]  how many microseconds ago what is taken out was admitted, at least
--
-- Replies {0, how many were added or taken out, now}.
local window, delta, name, age = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local used = redis.pcall('ZCARD', KEYS[1])
if type(used) == 'table' then return failed(used) end
if delta < 0 then
  local all = redis.call('ZREVRANGEBYSCORE', KEYS[1], whole(now - age), '(' .. whole(now - window), 'LIMIT', 0, whole(-delta))
  for _, member in ipairs(all) do redis.call('ZREM', KEYS[1], member) end
  return {0, #all, now}
end
for i = 1, delta do redis.call('ZADD', KEYS[1], whole(now), name .. ':' .. whole(i)) end
redis.call('PEXPIRE', KEYS[1], whole(math.ceil(window / 1000) + 1))
return {0, delta, now}
