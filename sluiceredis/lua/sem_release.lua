-- Takes a lease of a semaphore back.
--
-- KEYS     as the first two of sem_acquire
-- ARGV[1]  its id
-- ARGV[2]  if a request for it may arrive later than this: for how long, in
--          microseconds
--
-- Replies {0, 1 if it had not ended, how much is lent as far as it is known, now}.
local id, late = ARGV[1], tonumber(ARGV[2])
local holders, used, lost = semaphore(30000000)
if not holders then return used end
local ends, entry = redis.call('ZSCORE', KEYS[1], id), redis.call('HGET', KEYS[2], id)
local weight = entry and lease_of(entry)
if entry and not weight then return unreadable(2) end
if #lost > 0 and entry then ends = now + 1 end -- which was lost
if not ends and not late then return {0, 0, used or 0, now} end

local most = restore(lost)
if ends then
  redis.call('ZREM', KEYS[1], id)
  redis.call('HDEL', KEYS[2], id)
  used, holders = used and weight and used - weight, holders - 1
end
if holders == 0 then used = 0 end
if late then
  -- In its place there is one of nothing: who asks for it finds that lent.
  redis.call('ZADD', KEYS[1], whole(now + late), id)
  redis.call('HSET', KEYS[2], id, '0:0:' .. whole(late))
end
if late or holders > 0 then weigh(used) else redis.call('DEL', KEYS[2]) end
if late or #lost > 0 then keep(math.max(most, late or 0)) end
return {0, ends and tonumber(ends) > now and 1 or 0, used or 0, now}
