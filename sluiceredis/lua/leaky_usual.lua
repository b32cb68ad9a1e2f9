-- Takes from leaky buckets that are as usual: each is empty, or of the quota that is
-- asked for and of no other and holds no more than it should, and all requests for it
-- cost the same. Others are left alone; leaky_take must be asked for them.
--
-- KEYS  the buckets
-- ARGV  for each: its depth, and what stands behind the instant, as leaky_read wants
--       them; what each request costs, in nanoseconds; and how many there are
--
-- Replies {0, now, and for each bucket: requests granted, or -1 if it was left
-- alone; the level before: seconds, nanoseconds}.
--
-- It has no functions, because each would be made anew by each call, and takes 1,000
-- instructions of the server, as much as a tenth of a command. Of leaky_take, which
-- has eleven, the server has 99,000 to do, of this 69,000 for one bucket and 41,000 for
-- each of many, and of a script with nothing but TIME, GET and SET 51,000.
local call, pcall, match, format = redis.call, redis.pcall, string.match, string.format
local keys, args, time = KEYS, ARGV, redis.call('TIME')
local sec, us = time[1] + 0, time[2] + 0
local reply, a, r = {0, sec * 1000000 + us}, 1, 2
for i = 1, #keys do
  local depth, tag, cost, count = args[a] + 0, args[a + 1], args[a + 2] + 0, args[a + 3]
  local value = pcall('GET', keys[i])
  local granted, s, ns, level = 0, 0, 0, 0
  if value then
    granted = -1
    if type(value) == 'string' then
      local digits, rest, of = match(value, '^([1-8]%d%d%d%d%d%d%d%d%d)(%d%d%d%d%d%d%d%d%d)(.*)$')
      if of == tag then
        s, ns = digits - sec, tonumber(rest) - us * 1000 -- miniredis takes 0… for octal in arithmetic
        level = s * 1000000000 + ns
        if level < 0 then s, ns, level = 0, 0, 0 end
        if level <= depth then granted = 0 end
      end
    end
  end
  if granted == 0 then
    local room = depth - level
    if count == '1' then
      if cost <= room then granted = 1 end
    elseif cost <= room then
      granted = math.min(count + 0, math.floor(room / cost))
    end
    if granted > 0 then
      level = level + granted * cost
      local rest = level % 1000000000 + us * 1000
      local whole = (level - level % 1000000000) / 1000000000 + sec
      if rest >= 1000000000 then whole, rest = whole + 1, rest - 1000000000 end
      call('SET', keys[i], format('%d%09d%s', whole, rest, tag), 'PX', format('%d', level / 1000000 + 2))
    end
  end
  reply[r + 1], reply[r + 2], reply[r + 3] = granted, s, ns
  a, r = a + 4, r + 3
end
return reply
