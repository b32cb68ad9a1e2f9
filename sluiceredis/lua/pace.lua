-- A pacer is the instant of its next free slot and, in a pause, the end of that.
-- If a pause was ended early, a third instant says until where slots may reach
-- that were reserved before, and are void.

-- slots returns how far these are ahead of now: each as seconds and nanoseconds
-- and in nanoseconds, 0 if there is none. It returns nil if value is something
-- else.
local function slots(value)
  local digits, rest = string.match(value, '^(%d+)(.*)$')
  if not digits then return nil end
  local s, ns, free = ahead(digits)
  if not s then return nil end
  if rest == '' then return s, ns, free, 0, 0, 0, 0, 0, 0 end
  local first, second = string.match(rest, '^ (%d+)(.*)$')
  if not first then return nil end
  if second ~= '' then
    second = string.match(second, '^ (%d+)$')
    if not second or #second ~= 19 then return nil end
  end
  local ps, pns, pause = ahead(first)
  if not ps or pause > 9007199254740991 then return nil end
  if pause <= 0 then ps, pns, pause = 0, 0, 0 end
  local ms, mns, mark = 0, 0, 0
  if second ~= '' then
    ms, mns, mark = ahead(second)
    if not ms or mark > 9007199254740991 then return nil end
    if mark <= 0 then ms, mns, mark = 0, 0, 0 end
  end
  return s, ns, free, ps, pns, pause, ms, mns, mark
end

-- pacer returns the value of one.
local function pacer(free, pause, mark)
  local text = instant(free)
  if pause > 0 then text = text .. ' ' .. instant(pause) elseif mark > 0 then text = text .. ' 0' end
  if mark > 0 then text = text .. ' ' .. instant(mark) end
  return text
end

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

-- pacer_add has so many nanoseconds of slots taken without asking. Negative, it
-- gives back those that end at the instant last, if no others were reserved after
-- them. It returns how many.
local function pacer_add(p, delta, last)
  if delta < 0 and string.match(p.value or '', '^%d*') ~= last then return 0 end
  if p.free + delta > 9007199254740991 then return 0 end
  p.taken = delta
  return math.abs(delta)
end

kinds.pace = {args = 2, tells = {'clamped', 's', 'ns'}, read = pacer_read, fits = pacer_fits, write = pacer_write, add = pacer_add}
