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
