-- pacer_read returns the pacer of KEYS[i], or nil and what to reply.
--
-- ARGV[a]    nanoseconds of slots missed that may be caught up
-- ARGV[a+1]  how far ahead slots are reserved at most, in nanoseconds
local function pacer_read(i, a)
  local tolerance, horizon = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
  local value = redis.pcall('GET', KEYS[i])
  if type(value) == 'table' then return nil, failed(value, i) end

  local s, ns, free, ps, pns, pause, ms, mns, mark = 0, -tolerance, -tolerance, 0, 0, 0, 0, 0, 0
  if value then
    s, ns, free, ps, pns, pause, ms, mns, mark = slots(value)
    if not s then return nil, unreadable(i) end
    if free < -tolerance then s, ns, free = 0, -tolerance, -tolerance end
  end

  -- What was lost are slots that begin within the horizon and last no longer than
  -- it, counted from the epoch.
  local floor = (since - now) * 1000 + 2 * horizon
  if free < floor then s, ns, free = 0, floor, floor end

  -- No slot is reserved beyond the horizon, so one that is free only later is the
  -- work of a clock that stepped back.
  local clamped = 0
  if free > math.max(0, pause) + 2 * horizon then
    free, clamped = math.max(0, pause) + horizon, 1
    s, ns = 0, free
  end
  if pause > 0 and free < pause then s, ns, free = ps, pns, pause end
  return {key = KEYS[i], value = value, tolerance = tolerance, clamped = clamped,
    s = s, ns = ns, free = free, ps = ps, pns = pns, pause = pause, ms = ms, mns = mns, mark = mark, taken = 0}
end

-- pacer_fits returns how many of count requests for so many nanoseconds of slots
-- would wait for their first no longer than patience, one after the other.
local function pacer_fits(p, takes, count, patience)
  local room = (patience or 0) - p.free - p.taken
  if room < 0 then return 0 end
  return math.min(count, math.floor(room / takes) + 1)
end

-- pacer_write writes what was taken.
local function pacer_write(p)
  if p.taken == 0 then return end
  local free = p.free + p.taken
  redis.call('SET', p.key, pacer(free, p.pause, p.mark), 'PX', expiry(math.max(0, free, p.pause, p.mark) + p.tolerance))
end
