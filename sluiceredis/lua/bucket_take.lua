-- Takes from leaky buckets, each on its own.
--
-- KEYS  the buckets and, in strict mode, the epoch
-- ARGV  for each bucket: its depth and tag, as bucket_read wants them; how many pairs
--       follow, and the pairs: what a request costs, in nanoseconds, and how many of
--       those follow one another. Without pairs the bucket is only looked at. In strict
--       mode, last: epoch
--
-- Replies {0; for each bucket: requests granted, or a negative code, whether clamped, the
-- level before; now}. For one bucket that is what take replies.
--
-- Most buckets are empty, or of the rate that is asked for and no other, and no fuller than
-- full. They are decided without functions, because Lua makes each one anew in each call,
-- which takes as long as a tenth of a command. The others are left to general.
local call, pcall, match, format = redis.call, redis.pcall, string.match, string.format
local keys, args = KEYS, ARGV
local buckets, strict, epoch, limit, fits = #keys, args[#args] == 'epoch'
if strict then
  buckets, epoch, limit, fits = buckets - 1, general()
  local stop = epoch(buckets + 1)
  if stop then return stop end
end
local reply, a, r = {0}, 1, 1
for i = 1, buckets do
  local depth, tag, pairs = args[a] + 0, args[a + 1], args[a + 2] + 0
  local granted, clamped, level = 0, 0, 0
  local usual = not strict and pairs < 2
  if usual then
    local value = pcall('GET', keys[i])
    if value then
      usual = false
      if type(value) == 'string' then
        local digits, rest, of = match(value, '^([1-8]%d%d%d%d%d%d%d%d%d)(%d%d%d%d%d%d%d%d%d)(.*)$')
        if of == tag then
          level = (digits - sec) * 1000000000 + (tonumber(rest) - us * 1000) -- miniredis takes 0… for octal in arithmetic
          if level < 0 then level = 0 end
          usual = level <= depth
        end
      end
    end
  end
  if usual and pairs == 1 then
    local cost, count, room = args[a + 3] + 0, args[a + 4], depth - level
    if cost <= room then granted = count == '1' and 1 or math.min(count + 0, math.floor(room / cost)) end
    if granted > 0 then
      local after = level + granted * cost
      local rest = after % 1000000000 + us * 1000
      local whole = (after - after % 1000000000) / 1000000000 + sec
      if rest >= 1000000000 then whole, rest = whole + 1, rest - 1000000000 end
      call('SET', keys[i], format('%d%09d%s', whole, rest, tag), 'PX', format('%d', after / 1000000 + 2))
    end
  elseif not usual then
    if not limit then epoch, limit, fits = general() end
    local b, no = limit.read(i, a)
    if no and (no.err or buckets == 1) then return no end
    clamped, level = 0, 0
    if no then
      granted = no[1]
    else
      for p = a + 3, a + 1 + 2 * pairs, 2 do
        local cost = args[p] + 0
        local fit = fits(b, cost, args[p + 1] + 0)
        b.taken, granted = b.taken + fit * cost, granted + fit
      end
      limit.write(b, pairs > 0)
      clamped, level = b.clamped, b.level
    end
  end
  reply[r + 1], reply[r + 2], reply[r + 3] = granted, clamped, level
  a, r = a + 3 + 2 * pairs, r + 3
end
reply[r + 1] = now
return reply
